"""The model decides by the transition table of `core/`."""

import re

from ackd.core.record.transitions import TABLE, Phase, State, Verb
from tests.proof import table
from tests.proof.tlc import PROOFS


def test_the_models_table_is_that_of_the_code() -> None:
    """Row by row: who changes one, has to write the other again."""
    assert table.PLACE.read_text() == table.module(), "python -m tests.proof.table writes it again"


def test_each_row_of_the_code_is_in_the_module() -> None:
    """So an empty module would not do."""
    assert table.module().count("phase |->") == len(TABLE)


def test_the_model_names_verbs_phases_and_states_as_the_code_does() -> None:
    """A step by an unknown name would be LOST for ever, and prove nothing."""
    text = (PROOFS / "Record.tla").read_text()
    phases = {name for name, _ in re.findall(r'Step\("(\w+)", "(\w+)"\)', text)}
    verbs = set(re.findall(r'Step\([^()]*"(\w+)"\)', text))
    states = set(re.findall(r'!?\.?\bst (?:=|#|\|->) "(\w+)"', text)) - {"NONE"}
    assert phases <= {each.name for each in Phase}
    assert {"GRANT", "MOVE_TO_RETRY", "FINISH"} <= verbs <= {each.name for each in Verb}
    assert {"LEASED", "MOVING", "FINISHED"} <= states <= {each.name for each in State}
