"""Ray actors: workers, ledger, serving, learner; the only room that knows Ray."""
