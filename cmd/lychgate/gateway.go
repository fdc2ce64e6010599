package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
	"github.com/lychgate/lychgate/coordinator"
)

func gatewayCommand() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run a stateless front of the coordinator's API",
		Long: `Run one gateway until SIGINT or SIGTERM; a second signal ends it at once. It serves the whole
API, gRPC and HTTP, holds nothing, and sends every call on to the leader of its group.

It needs to be told of one coordinator that answers, and learns of the others from it. While
none answers, /readyz says so. At SIGHUP it takes the access rules and tokens of its configuration
anew, all or nothing. Any number of gateways may stand side by side.`,
		Example: `  lychgate gateway --config gateway.yaml
  lychgate gateway --set coordinators=10.0.0.1:7600,10.0.0.2:7600 --set listen.grpc=127.0.0.1:7600 --set listen.http=127.0.0.1:7601`,
		Args: named(),
	}
	from.add(cmd, map[string]string{"node": "node", "log-level": "log.level", "log-format": "log.format"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := from.source(cmd)
		if err != nil {
			return err
		}
		c, err := loadGateway(src)
		if err != nil {
			return err
		}
		logger := newLogger(cmd.ErrOrStderr(), c.Log.Level, c.Log.Format)
		gateway, err := coordinator.NewGateway(c, coordinator.Deps{Logger: logger})
		if err != nil {
			return err
		}
		defer onHangup(context.WithoutCancel(cmd.Context()), logger, func() error {
			c, err := loadGateway(src)
			if err != nil {
				return err
			}
			return gateway.Reload(c)
		})()
		return gateway.Run(cmd.Context())
	}
	return cmd
}

// loadGateway reads and checks the configuration of a gateway.
func loadGateway(src config.Source) (coordinator.GatewayConfig, error) {
	c := coordinator.DefaultGatewayConfig()
	if err := config.Load(&c, src); err != nil {
		return c, err
	}
	return c, inFile(src.File, c.Validate())
}
