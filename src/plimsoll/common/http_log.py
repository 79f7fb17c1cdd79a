"""Log of HTTP servers of aiohttp, without the errors that their clients cause."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

#: Malformed requests, bodies that cannot be decoded, and connections that end while a request is read.
_CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionResetError)


def http_logger(name: str) -> logging.Logger:
    """Return the logger for a server: any client could fill the log with its errors, and they can contain
    tokens.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_is_not_of_a_client)
    return logger


def _is_not_of_a_client(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _CLIENT_ERRORS))
