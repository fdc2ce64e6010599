package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Show and rotate the keys that verify tickets, and make tokens"}
	cmd.AddCommand(keysListCommand(), keysRotateCommand(), keysTokenCommand())
	return cmd
}

func keysListCommand() *cobra.Command {
	var to target
	var asJSON, jwks bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the public keys of the cluster's nodes",
		Long: `List the public keys that verify tickets: one of each node that has led, and those that were
rotated out and still verify. With --jwks they are printed as a JSON Web Key Set (RFC 7517), as
every coordinator serves it at /.well-known/jwks.json.`,
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
				return printJSON(out, keyRows(answer.GetKeys()))
			default:
				return printKeys(out, answer.GetKeys())
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
	err = t.administer(ctx, func(ctx context.Context, c lockpb.ClusterClient) (err error) {
		answer, err = c.Keys(ctx, &lockpb.KeysRequest{})
		return err
	})
	return answer, err
}

// keyRow is a key as --json prints it.
type keyRow struct {
	KeyID    string `json:"keyId"`
	Node     string `json:"node"`
	Public   string `json:"public"`   // Ed25519, hexadecimal
	Retiring bool   `json:"retiring"` // signs no more, and will be gone
}

func keyRows(keys []*lockpb.Key) []keyRow {
	rows := []keyRow{}
	for _, k := range keys {
		rows = append(rows, keyRow{k.GetKeyId(), k.GetNode(), hex.EncodeToString(k.GetPublic()), k.GetRetiring()})
	}
	return rows
}

func printKeys(w io.Writer, keys []*lockpb.Key) error {
	var rows [][]string
	twice := severalKeys(keys)
	for _, k := range keyRows(keys) {
		state := "signs"
		switch {
		case k.Retiring:
			state = "retiring"
		case slices.Contains(twice, k.Node):
			state = "signs, or lost"
		}
		rows = append(rows, []string{k.KeyID, k.Node, state, k.Public})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no keys yet: no node has registered one")
		return err
	}
	if err := printTable(w, []string{"KEY ID", "NODE", "STATE", "ED25519 PUBLIC KEY"}, rows); err != nil {
		return err
	}
	for _, node := range twice {
		_, err := fmt.Fprintf(w, "%s has several keys and signs with one: the others are of a disk that it lost; retire them: lychgate keys rotate\n", node)
		if err != nil {
			return err
		}
	}
	return nil
}

// severalKeys are the nodes with more than one key that is not retiring. Which one a node signs with only the node knows.
func severalKeys(keys []*lockpb.Key) (nodes []string) {
	live := map[string]int{}
	for _, k := range keys {
		if !k.GetRetiring() {
			live[k.GetNode()]++
		}
	}
	for node, n := range live {
		if n > 1 {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}
