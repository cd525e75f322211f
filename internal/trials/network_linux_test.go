package trials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/contract"
)

// network is machines that can be cut apart: each is a network namespace with an address of its own, and they are joined by a
// bridge in one more. This machine's own network has no part in it, and all of it is gone with the processes that use it.
//
// Who is cut off sends to a hardware address that nobody has: packets vanish without a word, as on a real network, in each
// direction by itself.
type network struct {
	t        testing.TB
	spaces   []*os.File     // of each machine
	lives    map[string]int // on which machine's loopback a node has an address
	operator map[int]string // --metrics of each node
}

// newNetwork makes machines, or skips the test where that is not allowed.
func newNetwork(t testing.TB, machines int) *network {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the command ip (iproute2), and there is none")
	}
	n := &network{t: t, lives: map[string]int{}, operator: map[int]string{}}
	bridge := n.space()
	err := ip(bridge, "link add joint type bridge", "link set joint up")
	for i := range machines {
		s := n.space()
		n.spaces = append(n.spaces, s)
		err = errors.Join(err, ip(bridge, fmt.Sprintf("link add port%d type veth peer name wire netns /proc/%d/fd/%d", i, os.Getpid(), s.Fd()),
			fmt.Sprintf("link set port%d master joint", i), fmt.Sprintf("link set port%d up", i)))
		err = errors.Join(err, ip(s, "link set lo up", "link set wire address "+hardware(i), "addr add "+machine(i)+"/24 dev wire", "link set wire up"))
	}
	if err != nil {
		t.Skipf("this kernel has no bridges or veth pairs for us: %v", err)
	}
	n.heal()
	return n
}

// machine is the address of one of them, and hardware that of its interface.
func machine(i int) string  { return fmt.Sprint("10.0.0.", i+1) }
func hardware(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i+1) }

const nobody = "02:00:00:00:00:ff"

// space makes a namespace, which lives as long as somebody has it open or is in it.
func (n *network) space() *os.File {
	n.t.Helper()
	var made *os.File
	err := elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		made, err = os.Open(here)
		return err
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		n.t.Skipf("network namespaces need root, and a kernel that has them: %v", err)
	}
	if err != nil {
		n.t.Fatalf("make a network namespace: %v", err)
	}
	n.t.Cleanup(func() { made.Close() })
	return made
}

const here = "/proc/thread-self/ns/net"

// elsewhere lets the thread go to another namespace, does something there, and comes back. Sockets and processes that are made
// there stay there.
func elsewhere(leave, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(here)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := leave(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprint("a thread is lost in a network namespace: ", err))
		}
		runtime.UnlockOSThread()
	}()
	return do()
}

func in(space *os.File, do func() error) error {
	return elsewhere(func() error { return unix.Setns(int(space.Fd()), unix.CLONE_NEWNET) }, do)
}

// ip has the command of that name carry out lines in a namespace.
func ip(space *os.File, lines ...string) error {
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	return in(space, func() error {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
}

// way is from one machine to another, in this direction alone.
type way struct{ from, to int }

// cut lets nothing pass on these ways, and everything on all others.
func (n *network) cut(ways ...way) {
	n.t.Helper()
	lost := map[way]bool{}
	for _, w := range ways {
		lost[w] = true
	}
	for from := range n.spaces {
		var lines []string
		for to := range n.spaces {
			if from == to {
				continue
			}
			at := hardware(to)
			if lost[way{from, to}] {
				at = nobody
			}
			lines = append(lines, fmt.Sprintf("neigh replace %s lladdr %s dev wire nud permanent", machine(to), at))
		}
		if err := ip(n.spaces[from], lines...); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *network) heal() { n.t.Helper(); n.cut() }

// house lets the nodes of a cluster live on these machines: they hear each other there, and are spoken to on the loopback of their
// machine, which nothing cuts.
func (n *network) house(c *cluster) {
	n.t.Helper()
	var moved []string
	for i, command := range c.commands {
		for j, flag := range command {
			switch flag {
			case "--cluster-listen":
				_, port, err := net.SplitHostPort(command[j+1])
				if err != nil {
					n.t.Fatal(err)
				}
				moved = append(moved, command[j+1], net.JoinHostPort(machine(i), port))
			case "--metrics":
				n.operator[i] = command[j+1]
				fallthrough
			case "--http":
				n.lives[command[j+1]] = i
			}
		}
	}
	for i := range c.commands {
		for j, arg := range c.commands[i] {
			c.commands[i][j] = strings.NewReplacer(moved...).Replace(arg)
		}
	}
	c.inside = func(node int, do func()) {
		if err := in(n.spaces[node], func() error { do(); return nil }); err != nil {
			n.t.Errorf("enter a network namespace: %v", err)
		}
	}
	c.t.Cleanup(n.heal) // before the nodes are stopped
}

// client reaches every node on the loopback of its machine.
func (n *network) client() *http.Client {
	c := contract.HTTP1()
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		node, ok := n.lives[address]
		if !ok {
			return nil, fmt.Errorf("nobody lives at %s", address)
		}
		err = in(n.spaces[node], func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return c
}
