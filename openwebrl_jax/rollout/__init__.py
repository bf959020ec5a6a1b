"""From a lease to a durable trajectory, and the ledger that counts them."""
