"""Inventory: stock, reservations, and where each order stands in the stock room."""
