"""KubeSchedulerConfiguration (`kubescheduler.config.k8s.io/v1`), kube-scheduler's configuration file.

START HERE: `settings.convert_configuration` makes the settings of this scheduler from it. `fields` has the
fields of the file, `plugins` the plugins that a profile enables, `arguments` those of its plugins. The
defaults and checks are those of kube-scheduler 1.36. A setting that would change placements and is not
implemented is an error; one that has no effect here is a warning.
"""
