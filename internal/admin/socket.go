package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketName is the operator's socket in the data directory.
const socketName = "admin.sock"

// Listen opens the operator's socket in a data directory that this process has locked. Only the
// owner of the directory can connect to the socket.
func Listen(data string) (net.Listener, error) {
	path := filepath.Join(data, socketName)
	os.Remove(path) // a killed server leaves its socket behind, and the lock proves that no other server is running
	old := umask(0o177)
	l, err := net.Listen("unix", path)
	umask(old)
	if err != nil {
		return nil, fmt.Errorf("open the admin socket: %w", socketFault(path, err))
	}
	return l, nil
}

// Ask sends a request to the server that is using a data directory, and decodes its JSON response.
func Ask(ctx context.Context, data, method, path string, body, answer any) error {
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := Do(ctx, data, method, path, &b)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// ErrNoServer means that no server is using the data directory.
var ErrNoServer = errors.New("no server is running")

// Running reports whether a server is using a data directory.
func Running(data string) bool {
	c, err := net.Dial("unix", filepath.Join(data, socketName))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Do sends a request to the server that is using a data directory, and returns the response. The
// caller must close its body. If the server refuses the request, Do returns an error.
func Do(ctx context.Context, data, method, path string, body *bytes.Buffer) (*http.Response, error) {
	if body == nil {
		body = new(bytes.Buffer)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport(data)}).Do(r)
	if err != nil {
		return nil, askFault(data, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// transport sends every request to the socket of a data directory.
func transport(data string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(data, socketName))
		},
	}
}

// askFault explains why there was no response.
func askFault(data string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s; set --data to its data directory", ErrNoServer, data)
	case errors.Is(err, syscall.EINVAL): // no server can listen on a path that long
		return noServer{socketFault(filepath.Join(data, socketName), err)}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket in %s belongs to another user", data)
	}
	return fmt.Errorf("connect to the server: %w", err)
}

// noServer is an error with a text of its own. For errors.Is it equals ErrNoServer.
type noServer struct{ error }

func (e noServer) Is(target error) bool { return target == ErrNoServer }

// refusal is the error for a response that is not 200.
func refusal(resp *http.Response) error {
	var e Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	return errors.New(e.Message)
}

// socketFault explains the error EINVAL. It means that the path is too long: the system limits the
// paths of sockets to about 100 bytes.
func socketFault(path string, err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("the path %s is too long for a socket; choose a shorter --data", path)
	}
	return err
}
