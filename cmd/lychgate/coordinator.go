package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
	"github.com/lychgate/lychgate/coordinator"
)

func coordinatorCommand() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run one node of the coordinator",
		Long: `Run one node of the coordinator until SIGINT or SIGTERM; a second signal ends it at once.
At SIGHUP it takes the access rules and tokens of its configuration anew, all or nothing.
A stop that hangs ends by itself after half a minute and the time of a failover: exit code 1.
Three nodes on three machines survive the loss of any one of them. One node alone is enough
for development.`,
		Example: `  lychgate coordinator --config coordinator.yaml
  lychgate coordinator --config coordinator.yaml --node n2 --dir /var/lib/lychgate/n2`,
		Args: named(),
	}
	from.add(cmd, map[string]string{"node": "node", "dir": "dir", "log-level": "log.level", "log-format": "log.format"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := from.source(cmd)
		if err != nil {
			return err
		}
		c, err := loadCoordinator(src)
		if err != nil {
			return err
		}
		logger := newLogger(cmd.ErrOrStderr(), c.Log.Level, c.Log.Format)
		node, err := coordinator.New(c, coordinator.Deps{Logger: logger})
		if err != nil {
			return err
		}
		defer careForHeap()()
		defer onHangup(context.WithoutCancel(cmd.Context()), logger, func() error {
			c, err := loadCoordinator(src)
			if err != nil {
				return err
			}
			return node.Reload(c)
		})()
		return node.Run(cmd.Context())
	}
	return cmd
}

// loadCoordinator reads and checks the configuration of a coordinator node.
func loadCoordinator(src config.Source) (coordinator.Config, error) {
	c := coordinator.DefaultConfig()
	if err := config.Load(&c, src); err != nil {
		return c, err
	}
	return c, inFile(src.File, c.Validate())
}
