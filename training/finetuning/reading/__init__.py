"""From the files of a labelled data set to the splits of examples that a task reads."""
