"""Layouts of records that Kafka, MM2 or mm2py writes. All pure."""
