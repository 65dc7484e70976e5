"""The placement translator copies what each EdgePlacement selects into the mailboxes of its destinations."""
