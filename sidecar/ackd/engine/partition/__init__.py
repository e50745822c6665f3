"""One owned partition: its ledger, its record in the store, and the bodies that are held."""
