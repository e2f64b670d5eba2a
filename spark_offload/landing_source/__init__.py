"""The data source `sepa` of Spark: observations in a landing zone that are on their way into the table."""
