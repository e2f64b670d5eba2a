"""Updates: from the text of a request to a plan, and from the plan to a change set."""
