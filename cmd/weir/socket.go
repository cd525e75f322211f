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
	client := &http.Client{Timeout: 30 * time.Second, Transport: socketTransport(data)}
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
		return askFault(data, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// socketTransport leads every request to the server's socket.
func socketTransport(data string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(data, adminSocket))
		},
	}
}

// isAbsent tells whether a request failed because no server runs.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// askFault says why no server answered.
func askFault(data string, err error) error {
	if isAbsent(err) {
		return fmt.Errorf("no server runs on %s (--data names its directory)", data)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the server's socket in %s belongs to another user", data)
	}
	return fmt.Errorf("ask the server: %w", ofSocket(filepath.Join(data, adminSocket), err))
}

// refusal is what the server says when it refuses.
func refusal(resp *http.Response) error {
	var e admin.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	return errors.New(e.Message)
}

// ofSocket says what the system means by an invalid argument: it holds paths of sockets to about a hundred bytes.
func ofSocket(path string, err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("the path %s is too long for a socket: choose a shorter --data", path)
	}
	return err
}
