package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// nodePlan is one node: everything that is not here is etcd's default.
type nodePlan struct {
	Name    string            `json:"name"`
	Dir     string            `json:"dir"`
	Client  string            `json:"client"`  // host:port
	Members map[string]string `json:"members"` // peer address by name
	Log     string            `json:"log"`
}

func runNode(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p nodePlan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	server, err := embed.StartEtcd(p.config())
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case <-server.Server.StopNotify():
		return errors.New("the node stopped before it was ready")
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	fmt.Println("ready")
	select {
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

func (p nodePlan) config() *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = p.Name, p.Dir
	c.ListenClientUrls, c.AdvertiseClientUrls = urls(p.Client), urls(p.Client)
	c.ListenPeerUrls, c.AdvertisePeerUrls = urls(p.Members[p.Name]), urls(p.Members[p.Name])
	var all []string
	for name, peer := range p.Members {
		all = append(all, name+"=http://"+peer)
	}
	c.InitialCluster = strings.Join(all, ",")
	c.LogLevel, c.LogOutputs = "warn", []string{p.Log}
	return c
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

// printLeader asks the nodes until one of them is the leader.
func printLeader(ctx context.Context, addrs []string) error {
	c, err := dial(addrs)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for ctx.Err() == nil {
		for _, addr := range addrs {
			ask, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			st, err := c.Status(ask, addr)
			cancel()
			if err == nil && st.Leader != 0 && st.Leader == st.Header.MemberId {
				fmt.Println(addr)
				return nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

// awaitReady returns when every node has answered a question that needs a quorum.
func awaitReady(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, addr := range addrs {
		c, err := dial([]string{addr})
		if err != nil {
			return err
		}
		_, err = c.Get(ctx, "ready")
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}
