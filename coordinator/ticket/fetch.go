package ticket

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// sweep asks one coordinator after the other until one has the key, since a node that lags does not know it yet,
// and returns the newest document. The error is that of the last one asked, and only if none answered.
func (r *Remote) sweep(ctx context.Context, keyID string) (newest Document, err error) {
	expected := r.Cluster()
	for _, address := range r.config.URLs {
		document, fetchErr := r.fetch(ctx, address, len(r.config.URLs))
		if fetchErr == nil && expected != "" && document.Ring.cluster != expected {
			fetchErr = fmt.Errorf("fetch keys from %s: it is of cluster %q, not %q", address, document.Ring.cluster, expected)
		}
		if fetchErr != nil {
			err = fetchErr
			continue
		}
		if newest.Ring == nil || newest.olderThan(document) {
			newest = document
		}
		if keyID == "" || document.Ring.Has(keyID) {
			break
		}
	}
	if newest.Ring != nil {
		err = nil
	}
	return newest, err
}

// fetch gets one document. One coordinator that hangs takes only its share of the time.
func (r *Remote) fetch(ctx context.Context, address string, share int) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.FetchTimeout/time.Duration(share))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Document{}, fmt.Errorf("fetch keys: %w", err)
	}
	response, err := r.config.Client.Do(request)
	if err != nil {
		return Document{}, fmt.Errorf("fetch keys: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Document{}, fmt.Errorf("fetch keys from %s: HTTP status %s", address, response.Status)
	}
	const limit = 1 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return Document{}, fmt.Errorf("fetch keys from %s: %w", address, err)
	}
	if len(text) > limit {
		return Document{}, fmt.Errorf("fetch keys from %s: more than %d bytes", address, limit)
	}
	document, err := ParseDocument(text)
	if err != nil {
		return Document{}, fmt.Errorf("fetch keys from %s: %w", address, err)
	}
	return document, nil
}
