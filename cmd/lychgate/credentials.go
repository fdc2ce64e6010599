package main

import (
	"crypto/tls"
	"os"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/coordinator/client"
)

// systemCA as a CA file stands for those that the system trusts.
const systemCA = "system"

// clientAuth is how a command and a coordinator know one another.
type clientAuth struct {
	files     client.Files
	tokenFile string
}

// add gives a command, and those below it, the flags; their defaults come from the environment.
func (a *clientAuth) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	for _, f := range []struct {
		to                  *string
		name, variable, use string
	}{
		{&a.files.CA, "tls-ca", "LYCHGATE_TLS_CA", "PEM `file` with the CA of the coordinators, or " + systemCA + "; without it plain text; default from LYCHGATE_TLS_CA"},
		{&a.files.Cert, "tls-cert", "LYCHGATE_TLS_CERT", "PEM `file` with the certificate of this client; default from LYCHGATE_TLS_CERT"},
		{&a.files.Key, "tls-key", "LYCHGATE_TLS_KEY", "PEM `file` with its key; default from LYCHGATE_TLS_KEY"},
		{&a.tokenFile, "token-file", "LYCHGATE_TOKEN_FILE", "`file` with the token that says who this client is; default from LYCHGATE_TOKEN_FILE"},
	} {
		flags.StringVar(f.to, f.name, os.Getenv(f.variable), f.use)
	}
}

// into completes a client's configuration.
func (a *clientAuth) into(cfg *client.Config) (err error) {
	files := a.files
	if files.CA == "" && files.Cert != "" {
		return usageError("--tls-cert needs --tls-ca: a file, or %s", systemCA)
	}
	system := files.CA == systemCA
	if system {
		files.CA = ""
	}
	if cfg.TLS, err = files.TLS(); err != nil {
		return usageError("--tls-ca, --tls-cert, --tls-key: %w", err)
	}
	if system && cfg.TLS == nil {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	if a.tokenFile != "" {
		cfg.Token = client.TokenFile(a.tokenFile)
	}
	return nil
}
