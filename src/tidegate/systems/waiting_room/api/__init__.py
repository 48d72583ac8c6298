"""HTTP routes of waiting rooms: `/v1/rooms`, places in line, and the page of visitors."""
