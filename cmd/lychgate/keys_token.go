package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func keysTokenCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "token IDENTITY",
		Short: "Make a token for an identity, or the line for one that you have",
		Long: `Make a random token for an identity, write it into a new file that only you can read, and print
the line for the token file of the coordinators (access.tokens in their configuration). The line
has the token's SHA-256 and not the token. With --out - a token is read from standard input
instead, and only the line is printed. The coordinators read the file anew when it changes.`,
		Example: `  lychgate keys token acme:worker --out worker.token >> /etc/lychgate/tokens
  lychgate keys token acme:worker --out - < worker.token`,
		Args: named("IDENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := lease.ParseIdentity(args[0])
			if err != nil {
				return usageError("%w", err)
			}
			token, err := tokenOf(out, cmd.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), coordinator.TokenLine(id, token))
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the token; - reads one from standard input")
	_ = cmd.MarkFlagRequired("out") // the flag is there
	return cmd
}

// tokenOf makes a token and writes it to a file that must not be there yet, or reads one.
func tokenOf(out string, stdin io.Reader) (string, error) {
	if out == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, 1<<10))
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", usageError("no token on standard input")
		}
		return token, nil
	}
	token := "lgt_" + rand.Text() // 130 bits and more
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(file, token+"\n")
	return token, errors.Join(err, file.Close())
}
