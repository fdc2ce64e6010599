package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/proxy"
)

// Kinds of configuration.
const (
	kindCoordinator = "coordinator"
	kindGateway     = "gateway"
	kindProxy       = "proxy"
)

var configKinds = []config.Kind{
	{Name: kindCoordinator, Zero: coordinator.Config{}},
	{Name: kindGateway, Zero: coordinator.GatewayConfig{}},
	{Name: kindProxy, Zero: proxy.Config{}},
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show configurations",
		Long: `Values come from a YAML file, then from the environment, then from flags, each over the one
before. The environment's rule: LYCHGATE_ and the key in capitals, levels separated by two
underscores, elements of a list by their number: LYCHGATE_POSTGRES__0__STORE is
postgres[0].store. Lists of plain values may be given whole, separated by commas.`,
	}
	cmd.AddCommand(configCheckCommand(), configShowCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	var kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a configuration is one that a server would start with",
		Long: `Check a file as a server would read it, environment included. Nothing is opened or contacted.
An unknown key, a value of the wrong type, and values that contradict each other are errors
that name the file and the key. What a server would start with, but is probably not meant, is a
warning.`,
		Example: `  lychgate config check proxy.yaml
  lychgate config check --kind coordinator n1.yaml`,
		Args: named("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			effective, found, err := loadKind(args[0], kind)
			if err != nil {
				return err
			}
			doubts := warnings(effective)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), checkView{args[0], found, doubts})
			}
			for _, w := range doubts {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", args[0], w)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok, a %s configuration\n", args[0], found)
			return err
		},
	}
	kindFlag(cmd, &kind)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// checkView is what --json prints of a good configuration.
type checkView struct {
	File     string   `json:"file"`
	Kind     string   `json:"kind"`
	Warnings []string `json:"warnings"`
}

// warnings says what about a good configuration is probably not meant.
func warnings(effective any) []string {
	found := []string{}
	switch c := effective.(type) {
	case coordinator.Config:
		if len(c.Members) == 2 {
			found = append(found, "members: two nodes survive the loss of neither; three survive that of one")
		}
		found = append(append(found, c.Warnings()...), openPrefixes(c.Access)...)
	case coordinator.GatewayConfig:
		found = append(append(found, c.Warnings()...), openPrefixes(c.Access)...)
	case proxy.Config:
		found = append(found, c.Warnings()...)
	}
	return found
}

// openPrefixes are the rules whose prefix ends within a word: it covers the words that go on, too.
func openPrefixes(a *coordinator.Access) (found []string) {
	if a == nil {
		return nil
	}
	for i, rule := range a.Rules {
		if p := rule.Prefix; p != nil && *p != "" && !strings.HasSuffix(*p, "/") {
			found = append(found, fmt.Sprintf("access.rules[%d].prefix: %q covers %q as well: end it with a slash", i, *p, *p+"2/x"))
		}
	}
	return found
}

func configShowCommand() *cobra.Command {
	var kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the effective configuration, defaults and environment included, secrets hidden",
		Example: `  lychgate config show proxy.yaml
  LYCHGATE_LOG__LEVEL=debug lychgate config show proxy.yaml --json`,
		Args: named("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			effective, _, err := loadKind(args[0], kind)
			if err != nil {
				return err
			}
			if asJSON {
				tree, err := config.Tree(effective)
				if err != nil {
					return err
				}
				return printJSON(cmd.OutOrStdout(), tree)
			}
			text, err := config.Show(effective)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	kindFlag(cmd, &kind)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func kindFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "kind", "", "coordinator, gateway or proxy; default: what the keys tell")
	completes(cmd, "kind", kindCoordinator, kindGateway, kindProxy)
}

// loadKind reads a file as the kind of server that it is for.
func loadKind(file, kind string) (effective any, found string, err error) {
	if kind == "" {
		if kind, err = config.Detect(file, configKinds); err != nil {
			return nil, "", err
		}
	}
	src := config.Source{File: file, Environ: os.Environ()}
	switch kind {
	case kindCoordinator:
		effective, err = loadCoordinator(src)
	case kindGateway:
		effective, err = loadGateway(src)
	case kindProxy:
		effective, err = loadProxy(src)
	default:
		err = usageError("--kind is %q; known are coordinator, gateway and proxy", kind)
	}
	if first, wrong := errors.AsType[*config.Error](err); wrong {
		if like, unsure := config.Detect(file, configKinds); unsure == nil && like != kind {
			err = fmt.Errorf("%w; by its keys the file is of a %s, and not of a %s", first, like, kind) // the others say the same
		}
	}
	return effective, kind, err
}
