"""What the history on Spark costs, against Spark without it. Knows `spark_offload`, which knows none of this."""
