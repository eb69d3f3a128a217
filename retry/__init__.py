"""Everything about failure: verdicts, retry topics, dead letters."""
