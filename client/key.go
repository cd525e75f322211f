package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"weir"
)

// Key is an API key. It prints as "[hidden]", so that a log of options or errors does not reveal
// the key. string(key) returns the key itself.
type Key string

// String returns "[hidden]", or "" for an empty key.
func (k Key) String() string {
	if k == "" {
		return ""
	}
	return "[hidden]"
}

// Format prints the same text as String, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { io.WriteString(f, k.String()) }

func (k Key) check() error {
	for _, r := range k {
		if r <= ' ' || r >= 0x7f {
			return errors.New("the key contains a space, a control character or a non-ASCII character")
		}
	}
	return nil
}

// keys holds the current key of a client.
type keys struct {
	ask func(context.Context) (Key, error) // nil if the key never changes

	// turn is a lock for the fields below: a goroutine that uses them has put a value into the
	// channel. A mutex would not do, because a goroutine must stop waiting for its turn when its
	// context ends.
	turn  chan struct{}
	now   Key
	known bool
}

// get returns the current key. If there is none yet, or if the current key is the refused one, get
// asks the program for another. While another goroutine asks, get waits for the result, but not
// longer than until ctx ends. If no key was refused, refused is empty.
func (k *keys) get(ctx context.Context, refused Key) (Key, error) {
	if k.ask == nil {
		return k.now, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return "", keyless{ctx.Err()}
	}
	if k.known && (refused == "" || refused != k.now) {
		return k.now, nil
	}
	key, err := k.ask(ctx)
	if err != nil {
		return "", keyless{fmt.Errorf("ask for the key: %w", err)}
	}
	if err := key.check(); err != nil {
		return "", permanent{err}
	}
	k.now, k.known = key, true
	return key, nil
}

// refusedKey reports whether err means that the service refused the API key, as opposed to the
// request itself.
func refusedKey(err error) bool {
	code := CodeOf(err)
	return code == weir.InvalidAPIKey || code == weir.KeyRevoked
}

// bearer returns the value of the Authorization header field, or "" for an empty key.
func (k Key) bearer() string {
	if k == "" {
		return ""
	}
	return "Bearer " + string(k)
}
