"""The drop-in contract: the same assertions on torch's DataLoader and on ours."""
