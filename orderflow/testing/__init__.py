"""What other teams test their handlers with."""
