#!/bin/sh
# Runs a GoogleTest program as a test of its own; it takes filters, shards and its report's place from
# the environment, as it does when it is a test itself.
exec "$@"
