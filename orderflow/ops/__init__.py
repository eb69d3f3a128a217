"""What operators run: provisioning, the local stack, the demo."""
