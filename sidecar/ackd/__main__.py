"""`python -m ackd` is the command `ackd`."""

import sys

from ackd.cli.main import main

sys.exit(main())
