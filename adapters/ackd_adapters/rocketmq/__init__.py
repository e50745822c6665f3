"""RocketMQ 5 over its gRPC proxy, by a thin client of our own on `grpc.aio`."""
