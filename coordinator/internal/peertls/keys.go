package peertls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/sparse"
)

// Config is what Keys are made from.
type Config struct {
	Files Files
	Self  Name // whom the certificate has to name
	// RequireClientCert refuses clients that show no certificate; otherwise they may show a token.
	RequireClientCert bool
	Warn              time.Duration // before the certificate expires: default 14 days
	Every             time.Duration // how often the files are looked at: default 5 s
	Handshake         time.Duration // longest on the peer port: default 5 s
	Refused           func(port, reason string)
	Logger            *slog.Logger
	Now               func() time.Time // for tests
}

// Keys are this process's certificate and whom it trusts, as the files say it now. Connections that stand are not
// touched by a change.
type Keys struct {
	config  Config
	current atomic.Pointer[material]
	refused *sparse.Log
}

// The defaults of a Config.
const (
	defaultWarn      = 14 * 24 * time.Hour
	defaultEvery     = 5 * time.Second
	defaultHandshake = 5 * time.Second
)

// warnAgain is how often a certificate that expires is in the log.
const warnAgain = 24 * time.Hour

// New reads the files. A certificate that names another node than this one is an error.
func New(config Config) (*Keys, error) {
	if config.Warn == 0 {
		config.Warn = defaultWarn
	}
	if config.Every == 0 {
		config.Every = defaultEvery
	}
	if config.Handshake == 0 {
		config.Handshake = defaultHandshake
	}
	if config.Refused == nil {
		config.Refused = func(string, string) {}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	k := &Keys{config: config, refused: sparse.New(config.Logger, 10, time.Second)}
	m, err := k.load()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	k.current.Store(m)
	return k, nil
}

func (k *Keys) load() (*material, error) {
	m, err := k.config.Files.load()
	if err != nil {
		return nil, err
	}
	if m.name != k.config.Self {
		return nil, fmt.Errorf("the certificate %s names %s, and this is %s", k.config.Files.Cert, m.name, k.config.Self)
	}
	now := k.config.Now()
	if now.After(m.leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate %s has expired at %s", k.config.Files.Cert, m.leaf.NotAfter.Format(time.RFC3339))
	}
	for _, usage := range bothUsages {
		if err := verifyChain(m.cert.Certificate, m.nodes, usage, now); err != nil {
			return nil, fmt.Errorf("the certificate %s would not be believed by the other nodes: %w", k.config.Files.Cert, err)
		}
	}
	return m, nil
}

// Expires is when the own certificate and the first CA certificate do.
func (k *Keys) Expires() (own, ca time.Time) {
	m := k.current.Load()
	return m.leaf.NotAfter, m.caExpires
}

// Run looks at the files until ctx is done, and takes what they say when they have changed. Files that cannot be used
// are in the log, and what was read before goes on.
func (k *Keys) Run(ctx context.Context) error {
	ticker := time.NewTicker(k.config.Every)
	defer ticker.Stop()
	var warned time.Time
	var fault string
	for {
		if k.expiring(warned) {
			warned = k.config.Now()
		}
		select {
		case <-ticker.C:
			fault = k.reload(fault)
		case <-ctx.Done():
			return nil
		}
	}
}

// reload returns what is wrong with the files, so that it is logged once and not every few seconds.
func (k *Keys) reload(known string) (fault string) {
	raw, err := k.config.Files.read()
	if err == nil && k.current.Load().same(raw) {
		return ""
	}
	var m *material
	if err == nil {
		m, err = k.load()
	}
	if err != nil {
		if err.Error() != known {
			k.config.Logger.Error("changed TLS files not used, the old ones go on", "error", err)
		}
		return err.Error()
	}
	k.current.Store(m)
	k.config.Logger.Info("TLS files read anew", "certificate", m.name.String(), "expires", m.leaf.NotAfter)
	return ""
}

// expiring warns once a day of a certificate that is about to expire, and says whether it did.
func (k *Keys) expiring(warned time.Time) bool {
	now := k.config.Now()
	if !warned.IsZero() && now.Sub(warned) < warnAgain {
		return false
	}
	own, ca := k.Expires()
	told := false
	for what, at := range map[string]time.Time{"certificate": own, "CA": ca} {
		if left := at.Sub(now); left < k.config.Warn {
			k.config.Logger.Warn("TLS certificate expires soon: replace the file, nothing has to be restarted",
				"which", what, "expires", at, "left", left.Round(time.Minute))
			told = true
		}
	}
	return told
}

// errNoCertificate is what a handshake without a certificate ends with where one is needed.
var errNoCertificate = errors.New("no certificate was shown")
