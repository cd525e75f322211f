package record

import "github.com/nats-io/nats.go"

const (
	headRoom  = 16 << 10 // bytes of a message that are reserved for its header
	chunkMost = 1 << 20  // maximum number of payload bytes in a message, even if the servers accept more

	// Entries that are written together share a message, because the cost of JetStream is per
	// message. packBytes limits the payloads in a message, because reading one entry reads its
	// whole message. packHead limits the encoded records, which must fit into headRoom in base64.
	packBytes = 128 << 10
	packHead  = 8 << 10
)

// Chunk is the number of payload bytes that fit into one message.
type Chunk int

// ChunkOf returns the Chunk of servers that accept messages of at most maxPayload bytes.
func ChunkOf(maxPayload int64) Chunk { return Chunk(min(maxPayload-headRoom, chunkMost)) }

// Parts returns how many messages a payload of this size takes.
func (c Chunk) Parts(size int) int { return max(1, (size+int(c)-1)/int(c)) }

// Group is the records that one write stores together, and the messages that hold them.
type Group struct {
	ID       uint64 // identifies this write, so that a node recognises its own records when it reads the log
	Messages []*nats.Msg
	Records  []Record // in the order of their positions

	subject string
	after   uint64
	chunk   Chunk
	ahead   int   // payload bytes that are still to come
	in      []int // for each record: the index in Messages of the message that holds it
	head    int   // header bytes used by the last message; 0 if no more records may be added to it
}

// NewGroup returns an empty group. The position of its first record will be after + 1. The caller
// expects to add payloads of this many bytes in total. If it adds fewer, the group takes more memory
// than it needs.
func NewGroup(id uint64, subject string, after uint64, chunk Chunk, bytes int) *Group {
	return &Group{ID: id, subject: subject, after: after, chunk: chunk, ahead: bytes}
}

// Next returns the position of the record that will be added next.
func (g *Group) Next() uint64 { return g.after + uint64(len(g.Records)) + 1 }

// Add puts a record into a group: into the last message if it fits, otherwise into one or more
// messages of its own. It copies the payload, because a caller that stops waiting may reuse its
// payload while the write is still being repeated.
func (g *Group) Add(r Record, payload []byte) {
	n := g.chunk.Parts(len(payload))
	room := max(len(payload), min(g.ahead, packBytes, int(g.chunk))) // if this record starts a message, reserve space for the later payloads that will share it
	g.ahead -= len(payload)
	r.Group, r.Parts, r.Sum = g.ID, uint32(n), Checksum(payload)
	if last := len(g.Messages) - 1; n == 1 && g.head > 0 && g.head+r.most() <= packHead && len(g.Messages[last].Data)+len(payload) <= min(packBytes, int(g.chunk)) {
		m := g.Messages[last]
		g.put(r, uint32(len(m.Data)))
		m.Data = append(m.Data, payload...)
		g.head += r.most()
		return
	}
	for i := range n {
		if i > 0 {
			r = Record{Group: g.ID}
			r.Kind = Part
		}
		from, to := i*int(g.chunk), min(len(payload), (i+1)*int(g.chunk))
		if n > 1 {
			room = to - from
		}
		g.Messages = append(g.Messages, &nats.Msg{Subject: g.subject, Data: append(make([]byte, 0, room), payload[from:to]...)})
		g.put(r, 0)
	}
	if g.head = r.most(); n > 1 {
		g.head = 0
	}
}

// put adds a record to the group and gives it the next position in the log. The last message of the
// group holds the record.
func (g *Group) put(r Record, offset uint32) {
	r.Position, r.Offset = g.Next(), offset
	g.Records = append(g.Records, r)
	g.in = append(g.in, len(g.Messages)-1)
}

// Seal writes the header of each message, which describes the records in that message. No record may
// be added afterwards.
func (g *Group) Seal() {
	for i := 0; i < len(g.Records); {
		first := i
		for i < len(g.Records) && g.in[i] == g.in[first] {
			i++
		}
		g.Messages[g.in[first]].Header = Header(g.Records[first:i]...)
	}
}

// Stored sets the field At of all records after the group was stored. JetStream stores the messages
// of a group with consecutive sequences. The parameter last is the sequence of the final one.
func (g *Group) Stored(last uint64) {
	for i := range g.Records {
		g.Records[i].At = last - uint64(len(g.Messages)-1-g.in[i])
	}
}
