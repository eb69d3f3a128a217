"""A tea shop to try things with: its customers, its stock, and 200 orders. Every person and address is made up."""
