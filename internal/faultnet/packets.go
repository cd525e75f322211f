package faultnet

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// packets relays UDP. Each client gets a socket of its own towards the backend, so that the backend
// can tell clients apart.
type packets struct {
	p      *Proxy
	front  *net.UDPConn
	random *rand.Rand

	mu    sync.Mutex // guards the fields below, and random
	peers map[netip.AddrPort]*net.UDPConn
}

func (p *Proxy) startUDP() error {
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	p.address = front.LocalAddr().String()
	k := &packets{p: p, front: front, random: rand.New(rand.NewPCG(p.o.Seed, 3)), peers: map[netip.AddrPort]*net.UDPConn{}}
	p.close = append(p.close, k.end)
	p.work.Go(k.receive)
	return nil
}

func (k *packets) end() {
	k.front.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.peers {
		c.Close()
	}
}

// receive reads packets from clients and passes them on.
func (k *packets) receive() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := k.front.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		c := k.peer(from)
		if c == nil {
			continue
		}
		k.pass(bytes.Clone(b[:n]), &k.p.up, func(b []byte) { c.Write(b) })
	}
}

// peer returns the socket that carries a client's packets to the backend, or nil if the backend
// cannot be reached or the proxy is closed.
func (k *packets) peer(client netip.AddrPort) *net.UDPConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.p.done: // the method end may have closed the sockets already, and would not close a new one
		return nil
	default:
	}
	if c := k.peers[client]; c != nil {
		return c
	}
	to, err := net.ResolveUDPAddr("udp", *k.p.backend.Load())
	if err != nil {
		return nil
	}
	c, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return nil
	}
	k.peers[client] = c
	k.p.opened.Add(1)
	k.p.work.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Read(b)
			if err != nil {
				select {
				case <-k.p.done:
					return
				default: // the backend is down for now
				}
				if !pause(k.p.done, 10*time.Millisecond) {
					return
				}
				continue
			}
			k.pass(bytes.Clone(b[:n]), &k.p.down, func(b []byte) { k.front.WriteToUDPAddrPort(b, client) })
		}
	})
	return c
}

// longestQueue is the longest time that a packet may wait on a slow link. A packet that would wait
// longer is lost, as in a router whose queue is full.
const longestQueue = 500 * time.Millisecond

// pass sends a packet at once, later or never, as the conditions require.
func (k *packets) pass(b []byte, by *pipe, send func([]byte)) {
	defer by.carried.Add(int64(len(b)))
	now, _ := k.p.conditions()
	k.mu.Lock()
	lost, late := k.random.Float64() < now.Loss, k.random.Float64() < now.Reorder
	after := now.Delay
	if late {
		after += time.Duration(k.random.IntN(20)+1) * time.Millisecond
	}
	k.mu.Unlock()
	if lost || now.BlackHole {
		return
	}
	if by.queue(now.Rate) > longestQueue {
		return
	}
	after += by.reserve(len(b), now.Rate)
	if after == 0 {
		send(b)
		return
	}
	k.p.work.Go(func() {
		if pause(k.p.done, after) {
			send(b)
		}
	})
}

// queue returns how long a new packet would wait on a link with this rate.
func (l *pipe) queue(rate int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rate <= 0 {
		return 0
	}
	return time.Until(l.free)
}
