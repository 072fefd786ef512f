//! The claimcheck CSI driver: directory and image volumes
