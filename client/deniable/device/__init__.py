"""What a device keeps: the state file with the ledger, the permanent responses and the journal."""
