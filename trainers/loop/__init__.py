"""The training loop: groups, advantages, update, weights, commit; again. It knows neither Kafka nor verl."""
