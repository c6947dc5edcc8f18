import logging


def get_logger(name):
    return logging.getLogger(name)


def configure_logging(args):
    pass
