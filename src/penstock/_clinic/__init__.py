"""From facts to findings, and from findings to prescriptions that were tried."""
