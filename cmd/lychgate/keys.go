package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Show the keys that verify tickets"}
	cmd.AddCommand(keysListCommand())
	return cmd
}

func keysListCommand() *cobra.Command {
	var to target
	var asJSON, jwks bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the public keys of the cluster's nodes",
		Long: `List the public keys that verify tickets, one of each node. With --jwks they are printed as a
JSON Web Key Set (RFC 7517), as every coordinator serves it at /.well-known/jwks.json.`,
		Example: `  lychgate keys list
  lychgate keys list --jwks > jwks.json`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := to.keys(cmd.Context())
			if err != nil {
				return err
			}
			switch out := cmd.OutOrStdout(); {
			case jwks:
				return printJSON(out, json.RawMessage(answer.GetJwks()))
			case asJSON:
				return printJSON(out, keyRows(answer))
			default:
				return printKeys(out, answer)
			}
		},
	}
	to.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&jwks, "jwks", false, "print a JSON Web Key Set")
	cmd.MarkFlagsMutuallyExclusive("json", "jwks")
	return cmd
}

// keys asks the coordinators, each once, until one answers: any has them.
func (t *target) keys(ctx context.Context) (answer *lockpb.KeysResponse, err error) {
	err = t.with(ctx, client.Config{}, func(ctx context.Context, c *client.Client) (err error) {
		for range t.addrs {
			if answer, err = c.Cluster().Keys(ctx, &lockpb.KeysRequest{}); !errors.Is(err, client.ErrUnreachable) {
				return err
			}
		}
		return err
	})
	return answer, err
}

// keyRow is a key as --json prints it.
type keyRow struct {
	KeyID  string `json:"keyId"`
	Node   string `json:"node"`
	Public string `json:"public"` // Ed25519, hexadecimal
}

func keyRows(answer *lockpb.KeysResponse) []keyRow {
	rows := []keyRow{}
	for _, k := range answer.GetKeys() {
		rows = append(rows, keyRow{k.GetKeyId(), k.GetNode(), hex.EncodeToString(k.GetPublic())})
	}
	return rows
}

func printKeys(w io.Writer, answer *lockpb.KeysResponse) error {
	var rows [][]string
	for _, k := range keyRows(answer) {
		rows = append(rows, []string{k.KeyID, k.Node, k.Public})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no keys yet: no node has registered one")
		return err
	}
	return printTable(w, []string{"KEY ID", "NODE", "ED25519 PUBLIC KEY"}, rows)
}
