"""Our environments in other trainers, and other environments here.

Each file needs the package that it is named for.

trl: any environment as an `environment_factory` of TRL's `GRPOTrainer`
openenv: any environment as an OpenEnv server, and an OpenEnv server as an environment
"""
