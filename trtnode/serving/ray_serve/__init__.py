"""The server on a Ray cluster: each model is a deployment, behind an ingress that finds it by its name.

Takes: a servable.yaml; a Ray cluster, or starts one on this machine.
Gives: KServe V2 on the ports of Ray's proxies, and an application for `serve run` and KubeRay.
Promises: a replica takes requests only once its model answers; placement, restarts and scaling are Ray's.
Imports: config, grpc, models, process, rest, schema, security, service, telemetry, workers.
"""
