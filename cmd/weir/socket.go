package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"weir/internal/admin"
)

// ask sends a request to the running server through its socket.
func ask(ctx context.Context, data, method, path string, body, answer any) error {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(data, adminSocket))
		},
	}}
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, &b)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("no server runs on %s (--data names its directory)", data)
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("the server's socket in %s belongs to another user", data)
		}
		return fmt.Errorf("ask the server: %w", ofSocket(filepath.Join(data, adminSocket), err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e admin.Error
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
			return fmt.Errorf("the server answered %s", resp.Status)
		}
		return errors.New(e.Message)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// ofSocket says what the system means by an invalid argument: it holds paths of sockets to about a hundred bytes.
func ofSocket(path string, err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("the path %s is too long for a socket: choose a shorter --data", path)
	}
	return err
}
