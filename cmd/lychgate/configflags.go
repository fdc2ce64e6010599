package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
)

// configFlags are the flags that say where a server's configuration comes from.
type configFlags struct {
	file  string
	set   []string
	named map[string]string // flag name to key
}

// add gives cmd --config, --set and one flag for each named key.
func (f *configFlags) add(cmd *cobra.Command, named map[string]string) {
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "config", "c", "", "YAML `file`; without it only environment and flags count")
	flags.StringArrayVar(&f.set, "set", nil, "set one `key=value` over the file, such as --set log.level=debug; may be repeated")
	f.named = named
	for name, key := range named {
		flags.String(name, "", "sets "+key)
		switch key {
		case "log.level":
			completes(cmd, name, logLevels...)
		case "log.format":
			completes(cmd, name, "text", "json")
		}
	}
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // the flag is there
}

// source is where to read from, after the flags are parsed.
func (f *configFlags) source(cmd *cobra.Command) (config.Source, error) {
	src := config.Source{File: f.file, Environ: os.Environ(), Flags: map[string]string{}, FlagOf: map[string]string{}}
	for _, setting := range f.set {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return src, usageError("--set %s: want key=value", setting)
		}
		src.Flags[key], src.FlagOf[key] = value, "set"
	}
	for name, key := range f.named {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			src.Flags[key], src.FlagOf[key] = flag.Value.String(), name
		}
	}
	return src, nil
}

// inFile names the file in an error about values that came from it.
func inFile(file string, err error) error {
	if err == nil || file == "" {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}
