"""Record layouts that Kafka, MM2 and mm2py share. All pure."""
