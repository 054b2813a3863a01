"""mm2py mirrors topics between Kafka clusters; it reads the files of MirrorMaker 2."""

__version__ = "0.1.0"
