package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// named takes exactly the arguments of these names, and says which one is missing. A last one in brackets may be
// left out.
func named(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		for _, name := range names[len(args):] {
			if !strings.HasPrefix(name, "[") {
				return fmt.Errorf("%s is missing", name)
			}
		}
		return nil
	}
}

// subcommand refuses a word that is no command below cmd, and names the one that was probably meant.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	meant := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		meant = fmt.Sprintf(", did you mean %q?", near[0])
	} else if below := below(cmd, args[0]); below != "" {
		meant = fmt.Sprintf(", did you mean %q?", below)
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant)
}

// below finds a command further down that a word was probably meant for, with all that leads to it.
func below(cmd *cobra.Command, word string) string {
	for _, c := range cmd.Commands() {
		c.SuggestionsMinimumDistance = max(c.SuggestionsMinimumDistance, 2)
		if near := c.SuggestionsFor(word); len(near) > 0 {
			return c.CommandPath() + " " + near[0]
		}
		if found := below(c, word); found != "" {
			return found
		}
	}
	return ""
}

// completes gives a flag that takes one of a few values, or something a shell cannot know, its completion.
func completes(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// completeArguments keeps a shell from offering the names of files where none belong.
func completeArguments(c *cobra.Command) {
	if c.ValidArgsFunction == nil && !c.HasSubCommands() && !strings.Contains(c.Use, "FILE") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
}
