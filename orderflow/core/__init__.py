"""The bottom layer: settings, clock, errors, logs, metrics, names, clients."""
