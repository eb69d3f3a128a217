"""The contract: Avro schemas, their lock, the pydantic events and the codec between them."""
