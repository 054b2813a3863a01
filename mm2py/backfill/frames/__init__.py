"""Topics as DataFrames of Spark: ``spark.read.format("mm2py")`` and the like. docs/spark.md has the options."""
