"""The consumer groups of this repository: their table of contents."""

GROUPS = {
    "email": "consumers.email.group:group",
    "inventory": "consumers.inventory.group:group",
    "audit": "consumers.audit.group:group",
}
